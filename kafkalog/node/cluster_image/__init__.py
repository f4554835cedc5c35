"""The metadata image: what the records of `__cluster_metadata-0` add up to."""

from kafkalog.node.cluster_image.model import ClusterImage
from kafkalog.node.cluster_image.reader import ImageReader, read_cluster_image

__all__ = ["ClusterImage", "ImageReader", "read_cluster_image"]
