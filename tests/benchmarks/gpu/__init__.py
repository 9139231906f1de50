"""What minitf does on a GPU: right first, then how fast, in at most eight minutes.

    python -m tests.benchmarks --device cuda --nanogpt FOLDER --text input.txt
    python -m tests.benchmarks --device cuda step loss              some parts (correctness, step, generation, loss)
    python -m tests.benchmarks --device cpu --tiny                  every part on a CPU, in miniature, to try the script

Parts have time limits, in which all their processes must be done; what fails or comes too late is noted, and the rest
goes on. Each result is written to the file that the first line names (`--out`, by default below outputs/) as soon as
it is there; the same command measures what the file lacks. Exit code 1: something failed or is missing.

suite.py says which processes a part has and what is wanted of it, running.py runs them, tables.py shows the results;
correctness.py, steps.py, decoding.py and time_to_loss.py are the processes.
"""
