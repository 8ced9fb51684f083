# syntax=docker/dockerfile:1
# The operator's image, for linux/amd64 and linux/arm64. It contains codeflare-operator without extras: no envtest.
# Size: about 250 MB unpacked, of which the base image is 125 MB, the operator with its dependencies 78 MB and bytecode
# 47 MB (`make image` prints the size).

FROM python:3.13-slim-bookworm AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
WORKDIR /src
COPY . .
# Only wheels are installed, with the hashes of deploy/image/*.txt: there is no compiler, and no source distribution may
# run code. `make base-images` pins the base image by digest, which every release requires. Bytecode is written to
# /opt/pyc, including the standard library's (11 MB): the base image has none and the root file system is read-only, so
# each start would compile everything again, which doubles the CPU time until the operator is ready (0.4 s more).
RUN python -m venv --without-pip /opt/cfo \
    && python -m pip install --require-hashes --only-binary :all: --requirement deploy/image/build-requirements.txt \
    && python -m pip wheel --no-deps --no-index --no-build-isolation --wheel-dir /wheels . \
    && python -m pip --python /opt/cfo/bin/python install --no-compile --require-hashes --only-binary :all: --requirement deploy/image/requirements.txt \
    && python -m pip --python /opt/cfo/bin/python install --no-compile --no-deps --no-index /wheels/*.whl \
    && PYTHONPYCACHEPREFIX=/opt/pyc python -m compileall -q \
        -x '^/usr/local/lib/[^/]+/(ensurepip|idlelib|lib2to3|pydoc_data|site-packages|tkinter|turtledemo)/' \
        /usr/local/lib/python3.* /opt/cfo/lib

FROM python:3.13-slim-bookworm
ARG VERSION=dev
ARG REVISION=unknown
LABEL org.opencontainers.image.title="codeflare-operator" \
      org.opencontainers.image.description="The CodeFlare operator in Python" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.source="https://github.com/project-codeflare/cfo" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
ENV PYTHONDONTWRITEBYTECODE=1 PYTHONPYCACHEPREFIX=/opt/pyc PYTHONUNBUFFERED=1 PATH=/opt/cfo/bin:$PATH HOME=/tmp
# glibc raises this threshold, its default, after the first large object, and then keeps the memory of all later ones.
ENV MALLOC_MMAP_THRESHOLD_=131072
COPY --from=build /opt/cfo /opt/cfo
COPY --from=build /opt/pyc /opt/pyc
COPY deploy/image/manager /manager
WORKDIR /
USER 65532:65532
EXPOSE 8080 8081 9443
ENTRYPOINT ["/manager"]
