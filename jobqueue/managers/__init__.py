"""Every query has a name here, and nothing else writes a status. Managers never import models."""
