import { existsSync } from 'node:fs';
import { dirname, join, normalize } from 'node:path';
import { describe, expect, it } from 'vitest';
import { ROOT, documents, prose, type Document } from '../support/markdown.ts';

/** As they are made from headings where Markdown is shown: a repeated one gets a number. */
function anchors(document: Document): Set<string> {
  const seen = new Map<string, number>();
  return new Set(
    [...prose(document).matchAll(/^#+ (.+)$/gm)].map((match) => {
      const slug = match[1]!
        .toLowerCase()
        .replaceAll(/[^\p{L}\p{N} _-]/gu, '')
        .replaceAll(' ', '-');
      const before = seen.get(slug) ?? 0;
      seen.set(slug, before + 1);
      return before === 0 ? slug : `${slug}-${before}`;
    }),
  );
}

const all = await documents();
const byPath = new Map(all.map((document) => [document.path, document]));

describe('links in the documents', () => {
  it.each(all)('lead to files and headings that exist: $path', (document) => {
    const targets = [...prose(document).matchAll(/\]\(([^)\s]+)\)/g)].map((match) => match[1]!);
    const broken = targets.filter((target) => {
      if (/^[a-z]+:/.test(target)) return false;
      const [file = '', anchor] = target.split('#');
      const path = file === '' ? document.path : normalize(join(dirname(document.path), file));
      if (!existsSync(join(ROOT, path))) return true;
      const there = byPath.get(path);
      return anchor !== undefined && there !== undefined && !anchors(there).has(anchor);
    });
    expect(broken).toEqual([]);
  });

  it('reach every document from the README', () => {
    const reached = new Set(['README.md']);
    for (const path of reached) {
      const document = byPath.get(path);
      if (!document) continue;
      for (const match of prose(document).matchAll(/\]\(([^)\s#]+\.md)/g))
        reached.add(normalize(join(dirname(path), match[1]!)));
    }
    expect(all.map(({ path }) => path).filter((path) => !reached.has(path))).toEqual([]);
  });

  it('list every decision in the architecture, in order', () => {
    const { text } = byPath.get('docs/architecture.md')!;
    const listed = text.slice(text.indexOf('\n## Decisions\n')).matchAll(/^- \[.+\]\((decisions\/.+)\)$/gm);
    const there = all.map(({ path }) => path).filter((path) => path.startsWith('docs/decisions/'));
    expect([...listed].map((match) => `docs/${match[1]}`)).toEqual(there.toSorted());
  });
});
