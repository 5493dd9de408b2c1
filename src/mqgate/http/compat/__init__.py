"""Foreign dialects: what other gateways' clients already speak."""
