"""A service that receives webhooks, as another company would write it; here it lives in the same project."""
