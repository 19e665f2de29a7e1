"""The Hugging Face hub's client, with a limit on how long it waits for an answer."""


def limit_waiting() -> None:
    """Let requests to the hub fail that nobody answers within HF_HUB_DOWNLOAD_TIMEOUT.

    The client takes its own limit for files alone; for what a repository holds it waits for ever.
    """
    from huggingface_hub import constants, get_session

    def limit(request) -> None:
        given = request.extensions["timeout"]
        seconds = constants.HF_HUB_DOWNLOAD_TIMEOUT
        request.extensions["timeout"] = {
            phase: seconds if time is None else time for phase, time in given.items()
        }

    client = get_session()
    hooks = client.event_hooks
    client.event_hooks = hooks | {"request": [*hooks["request"], limit]}
