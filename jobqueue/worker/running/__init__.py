"""Running claimed jobs: slots, threads, the event loop, interrupts and time limits."""
