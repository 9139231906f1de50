"""Entry point of `minitf` and `python -m mini_tf`.

Importing this module restores the default action of SIGINT, so that Ctrl-C ends the process without a traceback.
Commands (cli/terminal/streams.py) and training (training/signals.py) install their own handlers. An ignored SIGINT,
as under nohup, stays ignored.
"""

import signal

from mini_tf.system.collector import defer_collection

defer_collection()
if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)

from mini_tf.cli.app import main  # noqa: E402  imports that collection is deferred for

if __name__ == "__main__":
    main()
