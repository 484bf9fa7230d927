# Node with TypeScript, below /opt/node.
ARG FROM=base
FROM ${FROM}
USER root
# Of the system, which has the authorities of the machine where there are some.
ARG CERTIFICATES=/etc/ssl/certs/ca-certificates.crt
RUN if [ -e $CERTIFICATES ]; then export NODE_EXTRA_CA_CERTS=$CERTIFICATES; fi \
 && mkdir -p /opt/node && cd /opt/node && npm init -y > /dev/null \
 && npm install --no-audit --no-fund node@24 typescript tsx
ENV PATH=/opt/node/node_modules/.bin:$PATH
USER user
