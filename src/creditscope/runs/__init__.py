"""Many runs, anywhere, resumable: the record, the store, the executors and the archive."""
