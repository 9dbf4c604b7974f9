"""The searches of the paper: GeoCert, LayerCert, and the recursive form, composed of their parts."""
