"""What drives the engines where they are installed: `make peers` runs this folder in an environment that has them."""
