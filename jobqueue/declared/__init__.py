"""The tasks that the project declares: their registry, the rules for their functions, and the imports of their modules."""
