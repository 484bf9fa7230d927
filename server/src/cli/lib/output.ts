/** What verbs show: tables and colour on a terminal, plain columns when piped, JSON when asked for. */
import picocolors from 'picocolors';

const wants = (stream: NodeJS.WriteStream) =>
  !process.env['NO_COLOR'] &&
  process.env['TERM'] !== 'dumb' &&
  (stream.isTTY === true || Boolean(process.env['FORCE_COLOR']));

export const colour = picocolors.createColors(wants(process.stdout));
export const errorColour = picocolors.createColors(wants(process.stderr));

export function print(text: string): void {
  process.stdout.write(`${text}\n`);
}

/**
 * For people alone: on standard error, so that no pipe reads it. Replaces a line of progress on a terminal.
 */
export function note(text: string): void {
  process.stderr.write(`${process.stderr.isTTY ? '\r\u001b[K' : ''}${text}\n`);
}

export function printJson(value: unknown): void {
  print(JSON.stringify(value, null, process.stdout.isTTY ? 2 : undefined));
}

/** Text from elsewhere must not move the cursor or change the colours of this terminal. */
export function printable(text: string): string {
  // oxlint-disable-next-line no-control-regex -- control characters are what this is about
  return text.replaceAll(/[\u0000-\u001f\u007f-\u009f]/g, '\uFFFD');
}

// oxlint-disable-next-line no-control-regex -- the colours that cells may have
const COLOURS = /\u001b\[[0-9;]*m/g;
const widthOf = (cell: string) => Array.from(cell.replaceAll(COLOURS, '')).length;

/** Columns as wide as their widest cell; the last one runs out freely. */
export function table(heads: readonly string[], rows: readonly (readonly string[])[]): string {
  const widths = heads.map((head, column) =>
    Math.max(head.length, ...rows.map((row) => widthOf(row[column] ?? ''))),
  );
  const line = (cells: readonly string[]) =>
    cells
      .map((cell, column) =>
        column === cells.length - 1 ? cell : cell + ' '.repeat(widths[column]! - widthOf(cell)),
      )
      .join('  ');
  return [colour.bold(line(heads)), ...rows.map(line)].map((text) => text.trimEnd()).join('\n');
}

/** The table in a window: without the columns on the right, and the rows below, that have no room. */
export function tableWithin(
  heads: readonly string[],
  rows: readonly (readonly string[])[],
  window: { columns: number; rows: number },
): string {
  // A line for the heads, one for what is left out, one for the cursor.
  const shown = rows.slice(0, Math.max(1, window.rows - 3));
  let most = heads.length;
  const text = () =>
    table(
      heads.slice(0, most),
      shown.map((row) => row.slice(0, most)),
    );
  const isTooWide = () =>
    text()
      .split('\n')
      .some((line) => widthOf(line) > window.columns);
  while (most > 1 && isTooWide()) most--;
  const hidden = rows.length - shown.length;
  const more = [
    ...(hidden > 0 ? [`${hidden} more ${hidden === 1 ? 'row' : 'rows'}`] : []),
    ...(heads.length > most ? [heads.slice(most).join(', ')] : []),
  ];
  return more.length === 0
    ? text()
    : `${text()}\n${colour.dim(`no room for ${more.join(' and ')}`.slice(0, window.columns))}`;
}

const STATE_COLOURS: Record<string, (text: string) => string> = {
  active: colour.green,
  creating: colour.yellow,
  destroying: colour.yellow,
  paused: colour.blue,
  frozen: colour.blue,
  suspended: colour.blue,
  hibernated: colour.blue,
  archived: colour.blue,
  stopped: colour.dim,
  failed: colour.red,
};

export function stateText(state: string): string {
  return (STATE_COLOURS[state] ?? String)(state);
}
