document.currentScript.data = [];
