"""Version control and compilers."""

from __future__ import annotations

from everyday.task import python, shell

_FUNCTIONS = (
    "for f in $(seq 6); do { echo '#include <math.h>'; for n in $(seq 220); do "
    'echo "double f_${f}_$n(double *x, int k) { double s = $n; for (int i = 0; i < k; '
    "i++) s += sin(x[i] * $n) / (i + $f); "
    'return s; }"; done; echo "static char table_$f[4000000] = {1}; char *get_$f(void) { return table_$f; }"; '
    "} > unit$f.c; done"
)

TASKS = (
    shell(
        "git clone",
        "git clone -q --no-local --no-hardlinks $STORE/models.git out && cd out && git checkout -q old && "
        "git checkout -q main",
        "git",
    ),
    shell(
        "git commit and repack",
        "git init -q . && git config core.compression 1 && git config user.email a@b && git config user.name a && "
        "cp -r $STORE/checkpoint-500 . && git add . && git commit -qm all && git repack -adq",
        "git",
    ),
    shell(
        "compile C",
        _FUNCTIONS + "; for f in unit*.c; do gcc -g3 -O1 -c $f; done; ar rc libunits.a unit*.o; "
        "gcc -g -shared -o libunits.so -Wl,--whole-archive libunits.a -Wl,--no-whole-archive -lm",
        "gcc",
        "ar",
    ),
    python("cache of compiled kernels", "learning.py", "kernels"),
)
