"""Jobs of all kinds with ends that are known in advance: for demonstrations, loads and tests."""
