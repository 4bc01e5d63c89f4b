document.currentScript.data = {
    "asv-version": "0.6.6",
    "timestamp": 147414912407297
};
