"""A service that receives webhooks, as another company would write it; here it is part of the same project."""
