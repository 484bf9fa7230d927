import type { Backend } from '../../backends/backend.ts';

const MB = 1_000_000;

/** What a sandbox that is being created waits for, if that is its image. */
export function pullText(backend: Backend, template: string): string | undefined {
  const progress = backend.ability('images')?.pullProgress(template);
  if (!progress || progress.state === 'done') return undefined;
  const { layers, fetchedBytes, totalBytes } = progress;
  if (layers.length === 0) return `looking for image "${template}"`;
  const done = layers.filter(({ state }) => state === 'done').length;
  const size = (bytes: number) => (bytes / MB).toFixed(1);
  return `pulling image "${template}": ${size(fetchedBytes)} of ${size(totalBytes)} MB, ${done} of ${layers.length} layers unpacked`;
}
