// Puts the clients that are bundled into the page: the tests call them.
import { devextreme } from "./devextreme.js";
import { syncfusion } from "./syncfusion.js";

Object.assign(window, { devextreme, syncfusion });
