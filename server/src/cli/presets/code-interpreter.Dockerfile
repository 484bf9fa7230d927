# What code of models usually imports, for "cay run-code" and the interpreter of the SDK. matplotlib 3.11 does not
# take the "labels" that such code gives to boxplot.
ARG FROM=base
FROM ${FROM}
USER root
# Of the system, which has the authorities of the machine where there are some.
ARG CERTIFICATES=/etc/ssl/certs/ca-certificates.crt
RUN if [ -e $CERTIFICATES ]; then export PIP_CERT=$CERTIFICATES; fi \
 && python3 -m venv /opt/python \
 && /opt/python/bin/pip install --no-cache-dir --disable-pip-version-check \
      ipython numpy pandas scipy scikit-learn 'matplotlib<3.11' seaborn plotly requests beautifulsoup4 openpyxl pillow sympy
ENV PATH=/opt/python/bin:$PATH MPLBACKEND=agg
USER user
# Makes the cache of fonts, which takes seconds.
RUN python3 -c 'import matplotlib.pyplot'
