"""An app that takes long to load."""

import sys
import time

sys.stdout.write("starting\n")
sys.stdout.flush()
time.sleep(60)
