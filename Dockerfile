# The dashboard in a container, for strangers: see DEPLOY.md.
#
#     docker build -t fedviz .                              for CPUs
#     docker build -t fedviz --build-arg TORCH=cuda .       for NVIDIA GPUs; run it with --gpus all
#     docker run -p 8501:8501 -v fedviz:/data fedviz
#
# Each step is a command that works without Docker as well, and that tests/test_deploy.py runs or checks.
FROM python:3.12-slim

ARG TORCH=cpu
ENV FEDVIZ_TORCH=$TORCH FEDVIZ_HOSTED=1 FEDVIZ_HOME=/data PYTHONUNBUFFERED=1

RUN useradd --create-home --uid 1000 fedviz && mkdir /data && chown fedviz /data
USER fedviz
WORKDIR /home/fedviz/app
COPY --chown=fedviz . .
RUN python bootstrap.py install

VOLUME /data
EXPOSE 8501
HEALTHCHECK --start-period=30s CMD python bootstrap.py health --port 8501
CMD ["python", "bootstrap.py", "run", "--port", "8501"]
