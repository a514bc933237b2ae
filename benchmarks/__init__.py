"""What is measured for speed: ratios against a peer or a bound in the same run, interleaved; `make bench` runs all of it."""
