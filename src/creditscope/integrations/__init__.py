"""Other people's frameworks: one file and one foreign library each, imported only when it is used."""
