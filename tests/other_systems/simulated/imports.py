"""Imports every module of the product, and prints which fail for another reason than a missing framework.

Usage: python win.py imports.py
"""

import importlib
import pkgutil

FRAMEWORKS = {"composer", "flax", "jax", "keras", "lightning", "mindspore", "transformers"}


def is_of_missing_framework(error):
    while error is not None:
        if isinstance(error, ImportError) and error.name and error.name.partition(".")[0] in FRAMEWORKS:
            return True
        error = error.__cause__ or error.__context__
    return False


def main():
    failed, count = [], 0
    for package in ("collectors", "workers", "landscape"):
        root = importlib.import_module(package)
        for found in pkgutil.walk_packages(root.__path__, package + "."):
            if found.name.endswith("__main__"):
                continue
            count += 1
            try:
                importlib.import_module(found.name)
            except Exception as error:
                if not is_of_missing_framework(error):
                    failed.append(f"{found.name}: {type(error).__name__}: {error}")
    print(f"{count} modules, {len(failed)} fail", *failed, sep="\n")


if __name__ == "__main__":
    main()
