"""Work of every kind whose end is known beforehand: for demonstrations, loads and tests."""
