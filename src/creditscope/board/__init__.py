"""The board: claims of the field with the reports that audit them, by hash. No verdict is believed: each is computed."""
