# The commit that is checked out, with its environment and its Lean. docs/servers.md says how to run
# it; after the build it needs no network.
FROM debian:12-slim
RUN apt-get update \
    && apt-get install -y --no-install-recommends \
        bubblewrap ca-certificates git make python3-venv \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /rapid
COPY .git .git
RUN git reset --hard --quiet
# Any user finds Lean here. Without it the build fails; what pip and uv downloaded is not kept.
ENV RAPID_CACHE=/opt/rapid PATH=/rapid/.venv/bin:$PATH
RUN make setup && rapid lean-setup && rm -rf /root/.cache
# Snakemake keeps some there: a user given by --user has no home.
ENV XDG_CACHE_HOME=/tmp/cache
# So that manifests name the commit of a mounted clone, whoever owns it.
RUN git config --system --add safe.directory '*'
CMD ["make", "tables"]
