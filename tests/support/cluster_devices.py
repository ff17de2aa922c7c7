"""The devices of a Ray that runs in this process."""

from waiting import PATIENCE, wait_until


def wait_until_free(count, kind="GPU"):
    """Returns once that many devices are free: Ray counts what actors took or gave back a little later."""
    import ray

    wait_until(
        lambda: ray.available_resources().get(kind, 0) == count,
        what=lambda: f"{count} free {kind}; Ray says: {ray.available_resources()}",
    )


def wait_longer_for_places(patch):
    """Lets workers start as late as they do on a busy machine, where a user would rather go on without them."""
    from workers.pools import crew, placement

    for module in (crew, placement):
        patch(module, "PLACEMENT_SECONDS", PATIENCE)
