// The site of agentd: the pages of the repository as they are, with navigation and search. A link to a page that does not exist fails the build.
import { cpSync, existsSync, rmSync, statSync } from 'node:fs'
import { dirname, join, relative, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import { defineConfig } from 'vitepress'

const site = resolve(dirname(fileURLToPath(import.meta.url)), '..')
const repository = resolve(site, '..')

// SOURCE is where the repository's files can be read, such as https://github.com/acme/agentd/blob/main. Without it, what links to a source file is
// its name and no link.
const source = (process.env.SOURCE ?? '').replace(/\/$/, '')

// BASE is the path under which the site is served, with a slash at both ends.
const base = process.env.BASE ?? '/'

// What the site is made of is copied to where the compiled pages find Vue: below this folder.
const pages = join(site, 'pages')
rmSync(pages, { recursive: true, force: true })
for (const path of ['README.md', 'CHANGELOG.md', 'CONTRIBUTING.md', 'docs', 'examples/traveldesk/README.md', 'sdk/node/README.md', 'sdk/python/README.md']) {
  cpSync(join(repository, path), join(pages, path), { recursive: true, dereference: true })
}
cpSync(join(site, 'index.md'), join(pages, 'index.md'))

export default defineConfig({
  title: 'agentd',
  description: 'Durable LLM agents on NATS JetStream',
  base,
  srcDir: 'pages',
  outDir: '../dist/site',
  cacheDir: '../dist/site-cache',
  cleanUrls: false,
  lastUpdated: false,
  vite: { build: { chunkSizeWarningLimit: 2000 } },
  markdown: { html: false, anchor: { slugify }, languageAlias: { conf: 'ini' }, config: (md) => md.use(braces).use(sourceLinks).use(diagrams) },
  themeConfig: {
    search: { provider: 'local' },
    outline: [2, 3],
    nav: [
      { text: 'Quick start', link: '/docs/quickstart' },
      { text: 'Commands', link: '/docs/cli' },
      { text: 'agentd.yaml', link: '/docs/agentd_yaml' },
      { text: 'Changes', link: '/CHANGELOG' },
    ],
    sidebar: [
      group('Start', { README: 'What it is', 'docs/quickstart': 'Quick start', 'docs/limits': 'What it does not do', 'docs/coming_from': 'Coming from Temporal, Restate, LangGraph, Arvo', 'examples/traveldesk/README': 'Example: travel desk' }),
      group('Agents', { 'docs/agentd_yaml': 'agentd.yaml', 'docs/models': 'Models', 'docs/prompts': 'Prompts', 'docs/planning': 'Plans', 'docs/mcp': 'MCP', 'docs/evaluation': 'Evaluation', 'docs/lifecycle': 'Life of a run' }),
      group('Services', { 'docs/services': 'Services in any language', 'docs/contracts': 'Contracts', 'docs/conformance': 'Conformance', 'docs/go': 'Go', 'sdk/python/README': 'Python', 'sdk/node/README': 'Node' }),
      group('People', { 'docs/permissions': 'Permissions', 'docs/approvals': 'Approvals', 'docs/console': 'Console' }),
      group('Operation', { 'docs/cli': 'Commands', 'docs/operations': 'Operations', 'docs/reliability': 'Reliability', 'docs/dead_letters': 'Dead letters', 'docs/index_of_runs': 'Index of runs', 'docs/security': 'Security', 'docs/encryption': 'Encryption', 'docs/kubernetes': 'Kubernetes', 'docs/performance': 'Performance', 'docs/scale': 'How many servers' }),
      group('Inside', { 'docs/architecture': 'Architecture', 'docs/wire': 'Wire', 'docs/journal': 'Journal', 'docs/state_machine': 'State machine', 'docs/seeds': 'Seeds', 'docs/adr/README': 'Decisions', CONTRIBUTING: 'Contributing', CHANGELOG: 'Changes' }),
    ],
  },
})

function group(text, items) {
  return { text, items: Object.entries(items).map(([link, text]) => ({ text, link: '/' + link })) }
}

// slugify names headings as GitHub does: links to them lead there in both.
function slugify(text) {
  return text.toLowerCase().replace(/[^\p{L}\p{M}\p{N}_ -]/gu, '').replaceAll(' ', '-')
}

// braces keeps Vue from evaluating the templates of which pages speak.
function braces(md) {
  for (const rule of ['text', 'code_inline']) {
    const render = md.renderer.rules[rule]
    md.renderer.rules[rule] = (...args) => render(...args).replaceAll('{{', '<span v-pre>{{</span>')
  }
}

// sourceLinks makes links to folders and files that are not pages links into the repository.
function sourceLinks(md) {
  md.core.ruler.push('source_links', (state) => {
    // The titles of frontmatter are read without a page.
    if (!state.env.relativePath) return
    const folder = dirname(join(repository, state.env.relativePath))
    for (const block of state.tokens) {
      if (!block.children) continue
      let dropped = 0
      for (const token of block.children) {
        if (token.type === 'link_close' && dropped > 0) {
          dropped--
          token.tag = 'span'
          continue
        }
        if (token.type !== 'link_open') continue
        const [path, anchor] = token.attrGet('href').split('#')
        if (path === '' || /^[a-z]+:/.test(path) || path.startsWith('/')) continue
        const target = resolve(folder, path)
        const file = relative(repository, target)
        if (!existsSync(target)) throw new Error(`${state.env.relativePath}: ${path} does not exist`)
        if (statSync(target).isDirectory() || !existsSync(join(pages, file))) {
          if (source) {
            token.attrSet('href', `${source}/${file}`)
          } else {
            token.tag = 'span'
            token.attrs = [['title', file]]
            dropped++
          }
        }
      }
    }
  })
}

// diagrams leaves mermaid's blocks to the theme, which draws them.
function diagrams(md) {
  const fence = md.renderer.rules.fence
  md.renderer.rules.fence = (tokens, i, ...rest) => {
    const { info, content } = tokens[i]
    return info.trim() === 'mermaid' ? `<Diagram source="${encodeURIComponent(content)}" />` : fence(tokens, i, ...rest)
  }
}
