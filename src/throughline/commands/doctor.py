"""Say what this machine can do, what is missing for the rest, and how to get it."""

from throughline.installation import doctor


def main() -> None:
    doctor.main()
