# distrl on CPUs; docs/install.md has the commands. TORCH_INDEX: where pip finds torch for CPUs; empty: the default build, with CUDA.
# EXTRAS: train,ray for the nodes of a Ray cluster (docs/cluster.md); that brings what Kubernetes asks whether they are well, too.
FROM python:3.11-slim-bookworm AS build
ARG TORCH_INDEX=""
ARG EXTRAS="train"
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN python -m venv /opt/distrl
ENV PATH="/opt/distrl/bin:$PATH"
WORKDIR /src
# The largest layer first: it changes with constraints.txt alone.
COPY constraints.txt ./
RUN pip install -c constraints.txt ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} torch
COPY pyproject.toml README.md LICENSE ./
COPY configs configs
COPY src src
RUN pip install -c constraints.txt ".[${EXTRAS}]" && case "${EXTRAS}" in *ray*) pip install -c constraints.txt "ray[default]" ;; esac

FROM python:3.11-slim-bookworm
ARG EXTRAS="train"
# KubeRay's probes are made with wget.
# hadolint ignore=DL3008
RUN case "${EXTRAS}" in *ray*) apt-get update && apt-get install -y --no-install-recommends wget && rm -rf /var/lib/apt/lists/* ;; esac
RUN useradd --create-home --uid 1000 distrl && install -d -o distrl -g distrl /data /data/runs
COPY --from=build /opt/distrl /opt/distrl
ENV PATH="/opt/distrl/bin:$PATH" PYTHONUNBUFFERED=1
USER 1000:1000
WORKDIR /data
ENTRYPOINT ["distrl"]
CMD ["--help"]
