"""The template tags of the admin's templates."""
