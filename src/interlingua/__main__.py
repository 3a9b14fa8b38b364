"""The command `interlingua`, also as `python -m interlingua`."""

import sys


def main() -> int:
    """Run the command line; stopped while it is still being loaded, it ends as it would later."""
    try:
        from interlingua.cli import main as run
    except KeyboardInterrupt:
        print("interlingua: stopped.", file=sys.stderr)
        return 130
    return run()


if __name__ == "__main__":
    sys.exit(main())
