"""How a process of a process group ends."""

import os
import sys


def leave():
    """Ends this process as a success, and at once.

    A thread of gloo holds the tensors of a message a little longer than the message takes. On a busy machine it lets go
    of them when Python has begun to end. PyTorch (2.13) then asks for Python's lock, which ends the thread, and that
    aborts the process ("terminate called without an active exception", exit code -6). ``destroy_process_group`` does
    not prevent it where a network or a mesh still knows the group. So Python does not end here: the process does.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
