"""Drawing of finished reports and studies; nothing is measured here."""
