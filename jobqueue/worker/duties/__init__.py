"""The threads of a worker that contend for duties, lead them and run them."""
