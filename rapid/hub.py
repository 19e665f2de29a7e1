"""Limits how long the Hugging Face hub's client waits for an answer."""


def limit_hub_waiting() -> None:
    """Make requests to the hub fail after HF_HUB_DOWNLOAD_TIMEOUT seconds without an answer.

    huggingface_hub applies this limit only to downloads of files. Its request for a repository's
    list of files could wait for ever.
    """
    from huggingface_hub import constants, get_session

    def set_timeouts(request) -> None:
        timeouts = request.extensions["timeout"]
        default = constants.HF_HUB_DOWNLOAD_TIMEOUT
        request.extensions["timeout"] = {
            phase: default if seconds is None else seconds for phase, seconds in timeouts.items()
        }

    client = get_session()
    hooks = client.event_hooks
    client.event_hooks = hooks | {"request": [*hooks["request"], set_timeouts]}
