"""`python -m ckptprof` is the command `ckptprof`."""

from ckptprof.cli.main import entry

if __name__ == "__main__":
    entry()
