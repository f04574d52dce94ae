// What is known: the latest frame with its rows as objects, the past of the whole and of what is in focus, the events.

const MOST_MOMENTS = 300;
const MOST_EVENTS = 300;

const object = (names, row) => Object.fromEntries(names.map((name, i) => [name, row[i]]));

/** Columns of moments, `wall_s` among them, newest last. */
export class Past {
  constructor(columns) {
    this.columns = columns;
  }

  add(wall_s, figures) {
    const times = this.columns.wall_s;
    // The clock may be put back: what would come later has no place any more.
    while (times.length && wall_s < times.at(-1)) Object.values(this.columns).forEach((column) => column.pop());
    if (wall_s === times.at(-1)) return;
    times.push(wall_s);
    for (const [name, column] of Object.entries(this.columns)) {
      if (name !== "wall_s") column.push(figures?.[name] ?? null);
    }
    if (times.length > MOST_MOMENTS) Object.values(this.columns).forEach((column) => column.shift());
  }
}

export class Store {
  constructor() {
    this.frame = null;
    this.past = null;
    this.events = [];
  }

  hello(hello) {
    this.names = hello.names;
    this.past = new Past(hello.history);
    this.title = hello.title;
    this.version = hello.version;
    this.events = hello.events;
  }

  /** Take a frame in; gives the events that are new. */
  take(picture) {
    const { cell, device, process, slab, whole } = this.names;
    const devices = picture.devices.map((row) => {
      const found = object(device, row);
      found.cells = found.cells.map((each) => ({ device: found.device, ...object(cell, each) }));
      return found;
    });
    const processes = picture.processes.map((row) => {
      const found = object(process, row);
      found.slabs = found.slabs.map((each) => object(slab, each));
      return found;
    });
    const newest = this.events.at(-1)?.number ?? -1;
    const news = picture.events.filter((event) => event.number > newest);
    this.events = [...this.events, ...news].slice(-MOST_EVENTS);
    this.frame = { ...picture, devices, processes, whole: object(whole, picture.whole) };
    this.past.add(picture.wall_s, this.frame.whole);
    return news;
  }

  process(id) {
    return this.frame?.processes.find((process) => process.id === id) ?? null;
  }

  cell(device, core) {
    return this.frame?.devices.find((d) => d.device === device)?.cells.find((c) => c.core === core) ?? null;
  }

  /** The cells of a process as rows that details.devices has. */
  cells(rows) {
    return rows.map((row) => object(this.names.cell, row));
  }
}
