"""The program itself, as `minitf` or `python -m mini_tf`. To import this module is to start it.

Python's own answer to Ctrl-C is a traceback. From here to the end the signal's default holds instead, a silent death,
except while a command runs (cli/interrupts.py) or trains (training/signals.py). What is ignored, as behind nohup, stays
ignored.
"""

import signal

if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)

from mini_tf.cli.app import main

if __name__ == "__main__":
    main()
