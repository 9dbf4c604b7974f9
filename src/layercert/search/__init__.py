"""The searches: GeoCert, LayerCert with its parts, LayerCert with recursive restrictions."""
