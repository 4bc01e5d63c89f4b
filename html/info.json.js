document.currentScript.data = {
    "asv-version": "0.6.6",
    "timestamp": 1796096879356
};
