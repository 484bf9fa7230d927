import { describe, expect, it } from 'vitest';
import { jsonValues } from './json-values.ts';

const count = (text: string, most = 1_000_000) => jsonValues(Buffer.from(text), most);

describe('counting the values of a JSON text', () => {
  it('counts items and brackets, and nothing in strings', () => {
    expect(count('{}')).toBe(2);
    expect(count('[[],[],[]]')).toBe(7);
    expect(count('{"a,[{":"\\",[,","b":"\\\\"}')).toBe(3);
    expect(count(JSON.stringify({ input: 'a,b,c\\n"'.repeat(1000) }))).toBe(2);
  });

  it('stops beyond the most', () => {
    expect(count(`[${'[],'.repeat(100_000)}[]]`, 1000)).toBe(1001);
  });
});
