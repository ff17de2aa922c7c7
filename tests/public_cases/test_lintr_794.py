"""r-lib/lintr#794: a damaged file of a cache ended every later run, though nobody needs it."""

from workers.torch.compiled.packages import PackageFolder


def test_a_package_whose_facts_cannot_be_read_is_none(tmp_path):
    folder = PackageFolder(tmp_path / "packages")
    library = folder.keep("key", b"code")
    library.with_suffix(".json").write_text("[" * 100_000)
    assert folder.find("key") is None
