"""Run claimed jobs: slots, threads and the event loop, interrupts and time limits."""
