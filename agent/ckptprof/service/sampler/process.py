"""The process of the sampler, from its command line to its end."""

from __future__ import annotations

import os
import signal
import sys

import msgspec

from ckptprof.service.options import SamplerOptions
from ckptprof.service.sampler.descriptors import raise_descriptor_limit
from ckptprof.service.sampler.main import Sampler
from ckptprof.service.sampler.outputqueue import OutputQueue
from ckptprof.service.sampler.punctual import Punctual
from ckptprof.service.sampler.relay import Relay
from ckptprof.service.title import set_title
from ckptprof_collectors import heap, privileges
from ckptprof_collectors.kernelfs import KernelFs


def main() -> None:
    """Take options as JSON from the command line, control from standard input; send frames to standard output."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the whole group; the recorder decides when we end
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    options = msgspec.json.decode(sys.argv[1], type=SamplerOptions)
    set_title("sampler")
    heap.hold_small()
    privileges.hide()
    if options.witness_fd is not None:
        signal.set_wakeup_fd(options.witness_fd, warn_on_full_buffer=False)
        for number in options.witness_signals:
            signal.signal(number, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])  # the recorder blocks those that it takes itself
    raise_descriptor_limit()
    output = OutputQueue(os.dup(1))
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)  # nothing that prints may reach the stream of frames
    os.close(null)
    sampler = Sampler(options, KernelFs(), output, 0)
    sampler.drop_privileges()

    def end(code: int) -> None:
        output.close()  # before what the kernel cannot end, a thread that waits for a file server, keeps them open
        os.closerange(0, 3)
        os._exit(code)

    Relay(sampler, end, begin=Punctual().run).run()


if __name__ == "__main__":
    main()
