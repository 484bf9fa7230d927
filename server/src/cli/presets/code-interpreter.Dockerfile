# What code of models usually imports, for "cay run-code" and the interpreter of the SDK.
ARG FROM=base
FROM ${FROM}
USER root
# Of the system, which has the authorities of the machine where there are some.
ARG CERTIFICATES=/etc/ssl/certs/ca-certificates.crt
RUN if [ -e $CERTIFICATES ]; then export PIP_CERT=$CERTIFICATES; fi \
 && python3 -m venv /opt/python \
 && /opt/python/bin/pip install --no-cache-dir --disable-pip-version-check \
      numpy pandas matplotlib requests pillow sympy
ENV PATH=/opt/python/bin:$PATH MPLBACKEND=agg
USER user
