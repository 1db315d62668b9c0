"""The queries, each as a named method. Only managers and ``db`` write a status. Managers never import models."""
