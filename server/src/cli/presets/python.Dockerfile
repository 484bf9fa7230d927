# Python with the packages of data science, in an environment of its own below /opt/python.
ARG FROM=base
FROM ${FROM}
USER root
# Of the system, which has the authorities of the machine where there are some.
ARG CERTIFICATES=/etc/ssl/certs/ca-certificates.crt
RUN if [ -e $CERTIFICATES ]; then export PIP_CERT=$CERTIFICATES; fi \
 && python3 -m venv /opt/python \
 && /opt/python/bin/pip install --no-cache-dir --disable-pip-version-check \
      numpy pandas scipy matplotlib seaborn scikit-learn requests beautifulsoup4 openpyxl pillow sympy
ENV PATH=/opt/python/bin:$PATH MPLBACKEND=agg
USER user
# Makes the cache of fonts, which takes seconds.
RUN python3 -c 'import matplotlib.pyplot'
