/** How long the data of an event may be, as JSON. */
const MOST = 16 * 1024;
const TEXT = 512;
const ITEMS = 16;

/** The data of an event as JSON text. Text that is too long is cut, and marked as cut. */
export function boundedText(data: Record<string, unknown>): string {
  const text = JSON.stringify(data);
  if (text.length <= MOST) return text;
  const shorter = JSON.stringify({ ...(cut(data, 3) as Record<string, unknown>), truncated: true });
  return shorter.length <= MOST ? shorter : '{"truncated":true}';
}

function cut(value: unknown, depth: number): unknown {
  if (typeof value === 'string') return value.slice(0, TEXT);
  if (typeof value !== 'object' || value === null) return value;
  if (depth === 0) return null;
  if (Array.isArray(value)) return value.slice(0, ITEMS).map((item) => cut(item, depth - 1));
  return Object.fromEntries(
    Object.entries(value)
      .slice(0, ITEMS * 2)
      .map(([key, item]) => [key.slice(0, TEXT), cut(item, depth - 1)]),
  );
}
